"""`python -m dart` is `dartrl`."""

from dart.cli.main import main

if __name__ == "__main__":
    main()
