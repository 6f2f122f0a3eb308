"""What `tandem install` can set up, by name.

To add one: a name here, and a module of the same name in `integrations/clients` that exports CLIENT (a dash in the
name is an underscore in the module's). It is light on purpose: the command line imports it at every start.
"""

# Programs of their own, which propose or review.
CLIENTS = ("claude", "codex", "gemini", "opencode")
# What runs inside one of these clients.
OVERLAYS = ("gsd",)
INSTALLABLE = (*CLIENTS, *OVERLAYS)
