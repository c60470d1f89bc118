"""The command line as a module: ``python -m fupareto``, for environments whose scripts are not on the path."""

from fupareto.cli import main

if __name__ == "__main__":
    main()
