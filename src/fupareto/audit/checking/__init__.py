"""The checks of an audit, by what they are about."""
