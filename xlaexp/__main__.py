"""``python -m xlaexp``."""

from xlaexp.cli import main

if __name__ == "__main__":
    main()
