"""Pictures of runs and of split rules, as PNG, SVG or PDF by the file's name.

Every function but `split_rules` takes one `Run`, or several by name: {name: run}. An algorithm that
several of them have is labelled with the run's name as well. `reference` maps a label of the picture
to the value in the paper, in the unit of the column (an accuracy is a fraction). The same run always
gives the same bytes.
"""

from fedref.plots.bars import bars
from fedref.plots.clients import clients
from fedref.plots.curves import curves
from fedref.plots.split_rules import split_rules
from fedref.plots.style import STYLE, format_of, save

__all__ = ["STYLE", "bars", "clients", "curves", "format_of", "save", "split_rules"]
