"""An address of blobs is kept in files and shown in errors, so that it holds no secret."""

import pytest

from dart.core.blob_address import check_blob_address


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/some/prefix", "file:///shared/folder"])
def test_a_bucket_and_a_shared_folder_are_addresses(address: str) -> None:
    assert check_blob_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "s3://me:secret@bucket/prefix",
        "s3://bucket/prefix?key=secret",
        "s3://bucket/prefix#secret",
        "s3:me:secret@bucket",
        "https://me:secret@server/bucket",
        "s3://me:secret\u2100@bucket",  # urlsplit quotes it
    ],
)
def test_an_address_with_a_secret_is_refused_without_a_quotation(address: str) -> None:
    with pytest.raises(ValueError, match=r"expected s3://|leave them out") as refused:
        check_blob_address(address)
    assert "secret" not in str(refused.value)
