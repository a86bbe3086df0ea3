"""Settings for all tests."""

import logging
import secrets
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("recap", max_examples=25, deadline=None)
settings.load_profile("recap")

# A background job of a script ignores SIGINT, and so would the commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The S3 test server logs every request, which would bury a failure's output.
logging.getLogger("werkzeug").setLevel(logging.ERROR)


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a local S3 server; its keys are in the environment, also for child processes."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    for key, value in {**keys, "AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(key, value)
    bucket = f"demos-{secrets.token_hex(4)}"  # moto keeps the buckets of other tests
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    yield f"s3://{bucket}"
    server.stop()
