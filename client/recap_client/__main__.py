"""`python -m recap_client`."""

import sys

from recap_client.cli import main

sys.exit(main())
