"""The script that Alembic runs. It migrates on the caller's connection, in the caller's transaction."""

from alembic import context

from dart.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
