"""`python -m recap`."""

from recap.cli import main

if __name__ == "__main__":
    main()
