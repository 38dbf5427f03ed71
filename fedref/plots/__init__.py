"""Pictures of runs and of splits, as PNG, SVG or PDF by the file's name.

`bars`, `clients` and `curves` take one `Run`, or several by name: {name: run}. If several runs have
the same algorithm, its label includes the run's name. `reference` maps a label of the picture to the
value in the paper, in the unit of the column (an accuracy is a fraction). The same run always gives
the same bytes.
"""

from fedref.plots.bars import bars
from fedref.plots.clients import clients
from fedref.plots.curves import curves
from fedref.plots.splits import holdings, split_rules
from fedref.plots.style import STYLE, format_of, save

__all__ = ["STYLE", "bars", "clients", "curves", "format_of", "holdings", "save", "split_rules"]
