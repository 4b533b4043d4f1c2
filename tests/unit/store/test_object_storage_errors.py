"""What errors of object storage become, from the answers of a server."""

from typing import NoReturn

import pytest
from obstore import exceptions

from dart.store.errors import BlobsBusy
from dart.store.object_storage import ObjectStorage


def test_a_request_that_is_refused_for_a_wrong_clock_waits_and_blames_no_credentials() -> None:
    def refused() -> NoReturn:
        answer = "<Error><Code>RequestTimeTooSkewed</Code><Message>secret</Message></Error>"
        raise exceptions.PermissionDeniedError(f"Client error with status 403 Forbidden: {answer}")

    with pytest.raises(BlobsBusy, match="run a time service here") as busy:
        ObjectStorage("s3://bucket/prefix")._once("owner", refused)
    assert "AWS_ACCESS_KEY_ID" not in str(busy.value)
    assert "secret" not in str(busy.value)
