"""The `weft` command: parse the arguments, run one command and return its exit code."""

from __future__ import annotations

import argparse
import functools
import importlib
import keyword
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from ...specs.findings import InputError, SpecError
from .options.cost import add_cost_options
from .options.decode import add_generate, add_output_options, add_serve
from .options.export import add_export_commands
from .options.search import add_compile_option, add_search_options
from .options.trees import add_evaluate_options, add_tree_commands

TOUR = """Compose sequence models from typed blocks.

A model is a JSON spec that wires blocks together.  Start here:

  weft check transformer-base               is it valid? prints every mistake
  weft show  transformer-base               print its nodes, types and parameters
  weft draw  transformer-base -o base.svg   draw it
  weft train multi30k-en-de --set data.root=DIR
  weft translate outputs/multi30k-en-de/averaged < in.en > out.de
"""
EXIT_CODES = (
    "exit codes: 0 success, 1 invalid input, 2 invalid command line,\n"
    "  130 or 143 stopped by a signal (training saves a checkpoint first)"
)

SPEC = "a spec file, or the name of a shipped spec"
RUN = "a run file, or the name of a shipped run"
CHECKPOINT = "a checkpoint folder, such as outputs/demo/averaged"


@functools.cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; no command module is imported."""
    top = argparse.ArgumentParser(
        prog="weft",
        description=TOUR,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"weft {version('weft')}")
    commands = top.add_subparsers(dest="command", metavar="command", required=True)

    def add(name: str, module: str, short: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=short,
            description=short[:1].upper() + short[1:] + ".",
            epilog=f"example:\n  {example}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(module=module, function=f"{name}_" if keyword.iskeyword(name) else name)
        return made

    _add_spec_commands(add)
    _add_language_commands(add)
    _add_run_commands(add)
    add_export_commands(add)
    add_tree_commands(add)
    return top


Add = Callable[[str, str, str, str], argparse.ArgumentParser]


def _settable(command: argparse.ArgumentParser, example: str) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help=f"override a value, such as {example}; may be given several times",
    )


def _add_spec_commands(add: Add) -> None:
    spec = "spec.inspect"
    check = add(
        "check", spec, "check a spec and report every mistake", "weft check my.json --set layers=4"
    )
    show = add(
        "show", spec, "list a spec's nodes, types and parameters", "weft show transformer-tiny"
    )
    expand = add(
        "expand",
        spec,
        "print a spec with all defaults and inherited values filled in",
        "weft expand transformer-base > full.json",
    )
    draw = add(
        "draw",
        spec,
        "draw a spec as a diagram",
        "weft draw transformer-base -o base.svg --form typed",
    )
    for command in (check, show, expand, draw):
        command.add_argument("spec", help=SPEC)
        _settable(command, "layers=4")
    for command in (check, show, expand):
        command.add_argument(
            "--json", action="store_true", help="print JSON, for editors and tools"
        )
    expand.add_argument(
        "--provenance", action="store_true", help="print where each value came from"
    )
    draw.add_argument("-o", "--out", required=True, help="file to write: .svg, .png, .pdf or .dot")
    draw.add_argument(
        "--form",
        choices=("folded", "typed", "expanded"),
        default="folded",
        help="folded: draw repeated layers as one box; typed: label every wire with its type; "
        "expanded: draw every layer (default: %(default)s)",
    )
    cost = add(
        "cost",
        "spec.cost",
        "print the cost of each node: parameters, FLOPs, memory, sequential operations",
        "weft cost transformer-base --axes S=40,T=40\n"
        "  weft cost wmt14-en-de-base --project --devices 8 --peak 700",
    )
    cost.add_argument("spec", nargs="?", help=SPEC)
    _settable(cost, "layers=4")
    add_cost_options(cost)
    blocks = add("blocks", spec, "list the blocks that a spec may use", "weft blocks attention@1")
    blocks.add_argument(
        "name",
        nargs="?",
        help="print the ports, params and source of this block (default: list all blocks)",
    )
    blocks.add_argument("--json", action="store_true", help="print JSON")


def _add_language_commands(add: Add) -> None:
    diff = add(
        "diff",
        "spec.diff",
        "print the differences between two specs",
        "weft diff transformer-base mine.json -o diff.svg",
    )
    diff.add_argument("spec", help=SPEC)
    diff.add_argument("other", help="the spec to compare it with")
    diff.add_argument("-o", "--out", help="also draw the differences: .svg, .png, .pdf or .dot")
    diff.add_argument("--json", action="store_true", help="print JSON")
    swap = add(
        "swap",
        "spec.swap",
        "write a variant with some blocks replaced, and report which weights carry over",
        "weft swap transformer-base '**/f[use=attention@1]' --use grouped_query_attention@1 "
        "--set kv_heads=2 -o gqa.json",
    )
    swap.add_argument("spec", help=SPEC)
    swap.add_argument("select", help="nodes to replace: a path with * and **, and [key=value]")
    swap.add_argument("--use", required=True, help="the replacement block")
    swap.add_argument(
        "--expect", type=int, help="number of nodes that must match (default: at least 1)"
    )
    swap.add_argument(
        "--name", help="name of the variant (default: the file name without its suffix)"
    )
    swap.add_argument("-o", "--out", required=True, help="spec file to write")
    swap.add_argument("--json", action="store_true", help="print JSON")
    _settable(swap, "kv_heads=2 (params of the new block)")
    schema = add(
        "schema",
        "spec.language",
        "print the JSON Schema of specs or runs, for editors",
        "weft schema -o weft.schema.json\n  weft schema --run -o run.schema.json",
    )
    schema.add_argument(
        "--run", action="store_true", help="print the schema of run files instead of spec files"
    )
    schema.add_argument("-o", "--out", help="file to write (default: print it)")
    migrate = add(
        "migrate",
        "spec.language",
        "upgrade a spec, run or checkpoint from an older format to the current one",
        "weft migrate old.json -o new.json",
    )
    migrate.add_argument("spec", help="a spec file, a run file or a checkpoint folder")
    migrate.add_argument(
        "-o",
        "--out",
        help="file to write (default: print it); for a checkpoint, a new folder (required)",
    )


def _add_run_commands(add: Add) -> None:
    run = "train.run"
    prepare = add(
        "prepare", run, "build a run's tokenizer and binary corpus", "weft prepare multi30k-en-de"
    )
    train = add("train", run, "train a run", "weft train multi30k-en-de --set data.root=DIR")
    for command in (prepare, train):
        command.add_argument("run", help=RUN)
        command.add_argument("--out", help="output folder of the run (default: outputs/NAME)")
        _settable(command, "data.root=corpora/multi30k")
    prepare.add_argument(
        "--workers",
        type=int,
        help="number of tokenizer processes (default: one per core); the result does not depend "
        "on it",
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="continue from the newest checkpoint in the output folder",
    )
    train.add_argument(
        "--profile",
        type=int,
        nargs="?",
        const=5,
        metavar="N",
        help="instead of training, profile N updates and print time and memory by node of the "
        "spec (default: %(const)s); writes a flame graph into the output folder",
    )
    use = "train.evaluate"
    translate = add(
        "translate",
        "decode.translate",
        "translate lines from stdin to stdout",
        "weft translate outputs/demo/averaged --beam 5 < in.txt > out.txt",
    )
    evaluate = add(
        "evaluate",
        use,
        "print BLEU, chrF and perplexity of a checkpoint; for a parser, EVALB's report",
        "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    )
    score = add(
        "score",
        "decode.translate",
        "print the log probability of given translations",
        "weft score outputs/demo/averaged --source in.txt --target out.txt",
    )
    attend = add(
        "attend",
        "decode.translate",
        "show the attention weights of each head for a sentence and its translation",
        "weft attend outputs/demo/averaged 'three hundred and seven' -o heads.html",
    )
    for command in (translate, evaluate, score, attend):
        command.add_argument("checkpoint", help=CHECKPOINT)
        add_search_options(command)
    for command in (translate, evaluate):
        add_compile_option(command)
    translate.add_argument(
        "--buffer",
        type=int,
        default=1000,
        help="number of lines to read ahead; 1 answers each line immediately (default: "
        "%(default)s)",
    )
    translate.add_argument(
        "--prefix",
        metavar="FILE",
        help="file with the text that each translation must begin with, line by line",
    )
    translate.add_argument(
        "--include",
        metavar="FILE",
        help="file with the phrases that each translation must contain, line by line, "
        "tab-separated",
    )
    translate.add_argument(
        "--interactive", action="store_true", help="show a prompt, and answer each line immediately"
    )
    add_output_options(translate)
    attend.add_argument("text", help="a sentence to translate")
    attend.add_argument("--target", help="decoder input (default: the model's own translation)")
    attend.add_argument(
        "--only",
        metavar="WHAT",
        help="show one attention type only, such as 'target reads source' (default: all)",
    )
    attend.add_argument(
        "-o", "--out", required=True, help="file to write: .html (interactive) or .png"
    )
    score.add_argument("--source", required=True, help="file of source lines, plain text or gzip")
    score.add_argument("--target", required=True, help="file with their translations, line by line")
    score.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line, with every token's log probability",
    )
    add_evaluate_options(evaluate)
    average = add(
        "average",
        use,
        "average the weights of several checkpoints",
        "weft average outputs/demo/checkpoints/* -o outputs/demo/mean",
    )
    average.add_argument("checkpoint", nargs="+", help="checkpoint folders of one run")
    average.add_argument("-o", "--out", required=True, help="checkpoint folder to write")

    _add_import(add)
    add_generate(add)
    add_serve(add)


def _add_import(add: Add) -> None:
    made = add(
        "import",
        "checkpoint.import_hf",
        "convert another library's checkpoint folder; none of its code is run",
        "weft import hf ../bert-base-uncased --as bert --out outputs/bert",
    )
    made.add_argument("library", choices=("hf",), help="hf: a folder written by save_pretrained")
    made.add_argument("folder", help="folder with config.json and model.safetensors")
    made.add_argument(
        "--as",
        dest="table",
        metavar="TABLE",
        help="shipped import table, such as bert, or a table file (default: chosen by the model's "
        "type)",
    )
    made.add_argument("--out", help="checkpoint folder to write (default: outputs/NAME)")
    prune = add(
        "prune",
        "checkpoint.prune",
        "write a checkpoint with some attention heads removed",
        "weft prune outputs/demo/averaged --heads encoder.0.self_attention.f:0,3 "
        "-o outputs/demo/pruned",
    )
    prune.add_argument("checkpoint", help=CHECKPOINT)
    prune.add_argument(
        "--heads",
        action="append",
        required=True,
        metavar="PATH:0,3",
        help="path of an attention node and the heads to remove, counted from 0; "
        "may be given several times",
    )
    prune.add_argument("-o", "--out", required=True, help="checkpoint folder to write")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    if getattr(options, "profile", None) is not None or getattr(options, "measure", False):
        # Silence the lines that torch's profiler logs when it starts and stops.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    module = importlib.import_module(f".{options.module}", __package__)
    try:
        return int(getattr(module, options.function)(options) or 0)
    except SpecError as error:
        count = len(error.findings)
        print(f"{error}\n\n{count} mistake{'s' * (count != 1)} found", file=sys.stderr)
        return 1
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader closed the pipe; redirect stdout so that Python's final flush does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        problem = f"cannot read or write it: {error.strerror}"
        wrong = InputError(problem, place=str(error.filename), help="choose another path")
        print(f"error: {wrong}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
