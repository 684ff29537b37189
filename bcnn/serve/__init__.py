"""A trained network as a web page and a JSON API on this machine: `bcnn serve`."""
