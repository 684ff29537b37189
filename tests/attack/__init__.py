"""An attack on the command: kills, signals, full disks, broken images, wrong command lines, hostile files.

Run:      python -m tests.attack                       (make attack: at most 15 minutes, writes docs/attack.md)
          python -m tests.attack --minutes 2 --only kills --out /tmp/attack.md

It is no part of the default tests. The seed decides what is tried; moments of kills depend on the machine as well.
"""
