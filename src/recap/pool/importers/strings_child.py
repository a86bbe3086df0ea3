"""Run as a process of its own by `strings`: reads HDF5 texts named on stdin, writes a JSON line for each."""

import json
import sys


def main() -> None:
    """Answer `[path, object, attribute or null]` by a text or null, in order, each as soon as it is known."""
    import h5py  # type: ignore[import-untyped]

    limit, requests = json.load(sys.stdin)
    for path, place, attribute in requests:
        text = None
        try:
            with h5py.File(path, "r") as file:
                node = file[place]
                value = node.attrs[attribute] if attribute else node[()]
            text = value.decode("utf-8") if isinstance(value, bytes) else value
        except Exception as error:  # whatever it is, the parent only has to know that there is no text
            print(type(error).__name__, file=sys.stderr)
        print(json.dumps(text if isinstance(text, str) and len(text) <= limit else None), flush=True)


if __name__ == "__main__":
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (4 * 1024**3, 4 * 1024**3))
    except (ImportError, ValueError, OSError):  # not every system has it; the time limit remains
        pass
    main()
