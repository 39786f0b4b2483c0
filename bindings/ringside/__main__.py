"""python -m ringside is the ringside command."""

from ringside.cli import main

if __name__ == "__main__":
    main()
