"""The address of a run's blobs in object storage that several machines share (`run.blobs`).

Without an address the blobs are in the run directory.
"""

from urllib.parse import urlsplit

EXPECTED = "expected s3://BUCKET/PREFIX or file:///FOLDER"


def check_blob_address(text: str) -> str:
    """Return `text` if it is an address of object storage. Raises ValueError, which quotes no credentials."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValueError(f"this is no address; {EXPECTED}") from error  # that error may quote a password
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "the address holds credentials or parameters, which would be kept in config.toml and in logs: "
            "leave them out, and give AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL in the "
            "environment"
        )
    is_bucket = parts.scheme == "s3" and bool(parts.netloc)
    is_folder = parts.scheme == "file" and not parts.netloc and parts.path.strip("/") != ""
    if not (is_bucket or is_folder):
        raise ValueError(EXPECTED if "@" in text else f"{EXPECTED}, got {text!r}")
    return text
