"""The one exception for mistakes that a user can mend; the command line turns it into exit code 2."""


class UserError(Exception):
    """What was wrong, where, and what would be right, in words for the person who typed it."""


class NotApplicable(UserError):
    """A method was asked for something that it cannot do by its nature."""
