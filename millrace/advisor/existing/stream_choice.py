"""The stream that a job's program reads, and its settings: chosen among all that the program names, or left open as a question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace.advisor.existing.import_transform_stubs import (
    ProgramQuery,
    keeps_rows,
    notes_on_queries,
    queries_to_derive,
    sink_formats,
)
from millrace.advisor.existing.kafka_sign_in import names_sign_in, security_options_of_port
from millrace.advisor.existing.query_triggers_and_payload_formats import payload_format, shortest_trigger
from millrace.advisor.existing.reader_options import reading_keys_and_notes
from millrace.advisor.existing.stream_candidates_of_program import (
    BROKERS,
    NAMES,
    SERVERS,
    DataCatalog,
    ImportedStreamSettings,
    Kind,
    StreamAnswers,
    StreamCandidate,
    StreamName,
    candidate_from_source,
    candidates_by_stream,
    describe_values_with_lines,
    names_to_choose_from_text,
    region_of_stream_arn,
)
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.advisor.programs.possible_values import (
    DictValue,
    Unknown,
    Values,
    joined_alternatives,
    known_value,
    union_of_alternatives,
)
from millrace.advisor.programs.program_stream_model import FORMAT, GLUE, ProgramSource, ProgramStreams
from millrace.advisor.programs.program_streams import read_program_streams
from millrace.config.document.plain_text_secrets import censor
from millrace.config.document.problems import wrong_option_error

_ASKED: Mapping[Kind, str] = {"kafka": "--topic", "kinesis": "--stream"}


def read_stream_settings_of_program(
    text: str, launch: LaunchArguments, answers: StreamAnswers, catalog: DataCatalog
) -> ImportedStreamSettings:
    """Read a Python program.

    Parameters
    ----------
    text
        Its source; a text that is not Python gives no settings.
    launch
        What its run is started with.
    answers
        What the program does not tell.
    catalog
        Data Catalog for its tables and connections.

    Raises
    ------
    ConfigurationError
        An answer names a stream that the program does not read.
    """
    program = read_program_streams(text, launch)
    return _StreamChoice(program, answers, catalog, text).choose()


class _StreamChoice:
    """Choice of the streams of a program."""

    def __init__(
        self, program: ProgramStreams, answers: StreamAnswers, catalog: DataCatalog, text: str
    ) -> None:
        written = {each for query in program.queries for each in query.sources}
        unseen = tuple(each for each in program.handed_on if not written.issuperset(each.sources))
        self.program = replace(program, queries=(*program.queries, *unseen))
        self.text = text
        self.answers = answers
        self.notes = [
            f"line {each.line}: {sink_formats(each)[0]} is given the rows of line {each.sources[0].line}, and what it does with them is not read"
            for each in program.handed_on
            if each not in unseen and each.sources
        ]
        self.open: dict[str, str] = {}
        written |= {each for query in unseen for each in query.sources}
        all_of_them = [candidate_from_source(each, catalog) for each in program.sources]
        self.others = [each for each in all_of_them if each.kind is None and not each.refused]
        streams = [each for each in all_of_them if each.kind is not None or each.refused]
        self.candidates = [each for each in streams if each.source in written or not written]
        self.notes += [
            f"line {each.source.line} reads {' or '.join(one.name or one.origin for one in each.names)}, which nothing in this program "
            "writes: it is not in this file"
            for each in streams
            if each not in self.candidates
        ]

    def choose(self) -> ImportedStreamSettings:
        wanted = self.answers.stream or self.answers.topic
        kind: Kind | None = (
            "kinesis"
            if self.answers.stream
            else "kafka"
            if self.answers.topic or self.answers.brokers
            else None
        )
        chosen = [each for each in self.candidates if kind is None or each.kind in (None, kind)]
        if self.answers.brokers:
            chosen = self._candidates_on_cluster(chosen, self.answers.brokers)
        if wanted is not None and kind is not None:
            chosen = self._candidates_for(chosen, wanted, kind)
            same = [one for each in chosen for one in each.names if one.name == wanted]
            streams = [(same[0] if same else StreamName(wanted, 0), chosen)]
        elif not self.program.doubtful:
            streams = candidates_by_stream(chosen)
        else:
            streams = []
        kinds = {each.kind for each in chosen if each.kind is not None}
        if len(streams) < 2:
            kind = kind or (kinds.pop() if len(kinds) == 1 else None)
            if kind is None:
                return ImportedStreamSettings(
                    None, None, {}, None, why_not=self._reason_nothing_chosen(chosen)
                )
            streams = streams or [(self._only_name_or_ask(chosen, kind), chosen)]
        if not chosen:
            self.notes.append(
                f"{self._reason_nothing_chosen(chosen)}: this file has only what the options give"
            )
        self.notes += [
            f"line {each.source.line} reads {describe_values_with_lines(each.options.get(FORMAT, ())) or 'another stream'} too, which is not in this file"
            for each in self.others
            if GLUE not in each.options  # by Glue, what is no stream is a table that is joined
        ]
        written = self._derivable_queries([[each.source for each in by] for _, by in streams])
        first, *also = [self._settings_of_stream(kind, name, by) for name, by in streams]
        notes = tuple(dict.fromkeys(self.notes))
        return replace(first, notes=notes, written=written, also=tuple(also), spark=self.program.settings)

    def _settings_of_stream(
        self, kind: Kind | None, name: StreamName, chosen: Sequence[StreamCandidate]
    ) -> ImportedStreamSettings:
        kind = kind or chosen[0].kind or "kafka"
        options, reading = self._common_options(chosen, kind)
        if (
            options.get("kinesis.consumertype", "").lower() == "subscribetoshard"
            or "fanoutconsumerarn" in options
        ):
            self.notes.append("it reads by enhanced fan-out: fan_out: true in the land query keeps that")
        named = [one for each in chosen for one in each.names if one.name == name.name]
        assigned = (
            []
            if any(not one.partitions for one in named)
            else [each for one in named for each in one.partitions]
        )
        if assigned:
            shown = ", ".join(map(str, sorted(set(assigned))))
            self.notes.append(
                f"line {name.line}: it reads the partitions {shown} of {name.name}, and this file reads all of them: `millrace split` divides "
                "a topic among jobs"
            )
        sources = {each.source for each in chosen}
        queries = [each for each in self.program.queries if not each.sources or sources & set(each.sources)]
        trigger, ends, notes = shortest_trigger([each for each in queries if keeps_rows(each)] or queries)
        self.notes += notes
        payload, unkept = payload_format(
            (call for query in queries for source, call in query.payloads if source in sources),
            {
                key: union_of_alternatives(*(each.options.get(key, ()) for each in chosen))
                for key in ("classification", "delimiter")
            },
            kind,
        )
        self.notes += unkept
        asked = region_of_stream_arn(self.answers.stream or "")
        settings = ImportedStreamSettings(
            kind,
            name.name,
            options,
            trigger,
            open=self.open,
            pattern=name.pattern,
            partitions=tuple(sorted(set(assigned))),
            reading=reading,
            ends=ends,
            payload=payload,
            regions=tuple(
                sorted({asked} if asked else {region for each in chosen for region in each.regions})
            ),
        )
        self.open = {}
        return settings

    def _derivable_queries(self, streams: Sequence[Sequence[ProgramSource]]) -> tuple[ProgramQuery, ...]:
        """Return the queries whose rows are to be derived, and note these, those that only land, and those that print."""
        queries = [
            each
            for each in self.program.queries
            if not each.sources or any(set(each.sources) & set(one) for one in streams)
        ]
        derived = queries_to_derive(queries, streams)
        self.notes += notes_on_queries(queries, derived)
        return derived

    def _reason_nothing_chosen(self, chosen: Sequence[StreamCandidate]) -> str:
        if self.program.why_not:
            return self.program.why_not
        if chosen:
            return names_to_choose_from_text([one for each in chosen for one in each.names])
        outside = next((each.line for each in self.program.queries if not each.sources), None)
        if outside is not None:
            return f"line {outside} writes a stream that is read outside this program"
        if self.others:
            return "; ".join(
                f"line {each.source.line} reads {describe_values_with_lines(each.options.get(FORMAT, ())) or 'a table that is no stream'}"
                for each in self.others
            )
        if read := re.search(r"^[^#\n]*\.\s*(readStream|create_data_frame)\b", self.text, re.MULTILINE):
            line = self.text.count("\n", 0, read.end()) + 1
            return f"a run with the job's arguments does not reach its {read[1]} in line {line}"
        return "no readStream and no create_data_frame in it"

    def _candidates_for(
        self, candidates: list[StreamCandidate], chosen: str, kind: Kind
    ) -> list[StreamCandidate]:
        """Return the candidates that read a stream, or that may read it."""

        def is_chosen_name(name: str | None) -> bool:
            whole = region and name is not None and name.startswith("arn:")
            last = None if name is None else name.rpartition("/")[2]
            return name == chosen or (not whole and last == chosen.rpartition("/")[2])

        region = region_of_stream_arn(chosen)
        same = [each for each in candidates if any(is_chosen_name(one.name) for one in each.names)]
        if region:
            same = [each for each in same if region in each.regions] or [
                each for each in same if not each.names_region
            ]
        named = {one.name or "" for each in same for one in each.names if is_chosen_name(one.name)}
        arns = {each for each in named if region_of_stream_arn(each)}
        places = {" or ".join(sorted(each.regions)) or "the job's region" for each in same}
        if not region and max(len(places), len(arns)) > 1:
            where = ", ".join(sorted(arns if len(arns) > 1 else places))
            allowed = f"the ARN of one of the streams of this name that the program reads: {where}"
            raise wrong_option_error(_ASKED[kind], chosen, allowed)
        matches = same or [each for each in candidates if any(one.name is None for one in each.names)]
        known_ones = [one for each in candidates for one in each.names if one.name is not None]
        if candidates and not matches:
            raise wrong_option_error(
                _ASKED[kind],
                chosen,
                f"a stream that the program reads, one of {names_to_choose_from_text(known_ones)}",
            )
        self._note_streams_left_out(
            one
            for each in candidates
            for one in (each.names if same else ())
            if one.name is not None and (each not in same or not is_chosen_name(one.name))
        )
        return matches

    def _candidates_on_cluster(
        self, candidates: list[StreamCandidate], brokers: str
    ) -> list[StreamCandidate]:
        """Return the candidates without those on another cluster; if none names these brokers, all have them."""
        asked = {each.strip() for each in brokers.split(",")}
        elsewhere = [each for each in candidates if each.brokers and not each.brokers & asked]
        if any(each.brokers & asked for each in candidates):
            self._note_streams_left_out(one for each in elsewhere for one in each.names)
            return [each for each in candidates if each not in elsewhere]
        if len({each.brokers for each in elsewhere}) > 1:
            self.notes.append(f"it reads from several clusters, and this file from {brokers} alone")
        given = {BROKERS[0]: known_value(brokers, 0)}
        return [replace(each, options={**each.options, **given}) for each in candidates]

    def _note_streams_left_out(self, names: Iterable[StreamName]) -> None:
        if text := names_to_choose_from_text(names):
            self.notes.append(f"it reads other streams too, which are not in this file: {text}")

    def _only_name_or_ask(self, candidates: Sequence[StreamCandidate], kind: Kind) -> StreamName:
        names = [one for each in candidates for one in each.names]
        distinct = {(one.name, one.pattern): one for one in reversed(names)}
        if len(distinct) == 1 and names[0].name is not None:
            return names[0]
        what = "the program reads several" if len(names) > 1 else "the program does not name it"
        self.open["name"] = f"{what}: {names_to_choose_from_text(names)}; give it with {_ASKED[kind]} NAME"
        return StreamName(None, names[0].line if names else 0)

    def _common_options(
        self, candidates: Sequence[StreamCandidate], kind: Kind
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the options that have one value in all candidates and the keys that they become, and ask for the brokers."""
        table = joined_alternatives(
            DictValue(each.options, each.source.more or each.refused) for each in candidates
        )
        options, unclear = dict[str, str](), dict[str, Values]()
        for key, values in table.values.items():
            certain = {str(each.value) for each in values if each.value is not None}
            lost = any(isinstance(each.value, Unknown) for each in values)
            if len(certain) == 1 and not lost and (len(values) == 1 or key in _FINE_IF_ABSENT):
                options[key] = certain.pop()
            elif certain or lost:
                unclear[key] = values
        if kind == "kafka":
            self._set_brokers_or_ask(options, unclear, candidates)
            security = [
                f"{key} is {describe_values_with_lines(values)}"
                for key, values in unclear.items()
                if key.removeprefix("kafka.") in _SECURITY
            ]
            if security:
                self.open["authentication"] = "; ".join(security)
            elif table.more or not candidates:
                self._set_sign_in_by_port_or_ask(options, candidates, table.more)
        reading, notes = reading_keys_and_notes(candidates, options, unclear)
        self.notes += notes
        return options, reading

    def _set_brokers_or_ask(
        self, options: dict[str, str], unclear: Mapping[str, Values], candidates: Sequence[StreamCandidate]
    ) -> None:
        if self.answers.brokers:
            options[BROKERS[0]] = self.answers.brokers
            return
        addresses = next((options[each] for each in BROKERS if each in options), "")
        if re.fullmatch(SERVERS, addresses):
            return
        for each in BROKERS:
            options.pop(each, None)
        reasons = (
            f"{censor((), addresses)} is not HOST:PORT" if addresses else "",
            *(f"{key} is {describe_values_with_lines(unclear[key])}" for key in BROKERS if key in unclear),
            *(each.refused or each.source.more for each in candidates),
        )
        why = next(filter(None, reasons), "not named")
        line = candidates[0].source.line if candidates else 0
        self.open["brokers"] = f"line {line}: {why}; give them with --brokers HOST:PORT,..."

    def _set_sign_in_by_port_or_ask(
        self, options: dict[str, str], candidates: Sequence[StreamCandidate], more: str
    ) -> None:
        """Set the sign-in that the brokers' port stands for, where options that are not known may tell another."""
        if names_sign_in(options):
            return
        line = f"some options of line {candidates[0].source.line}" if candidates else "its options"
        why = f"{line} come from {more or 'a program that is not read'}"
        sign_in = security_options_of_port(next((options[each] for each in BROKERS if each in options), ""))
        if "brokers" in self.open:
            why += ", and the brokers' port tells it; give them with --brokers HOST:PORT,..."
            self.open["authentication"] = why
        elif sign_in is None:
            self.open["authentication"] = (
                f"{why}, and the brokers' port is none of MSK's: none, tls or a mapping"
            )
        else:
            options |= {**sign_in, **options}
            self.notes.append(f"{why}: the authentication is taken from the brokers' port")


_SECURITY = ("security.protocol", "sasl.mechanism", "ssl.keystore.location")
_FINE_IF_ABSENT = frozenset(each.lower() for names in NAMES.values() for each in names) | {*BROKERS}
"""Options without which there is no stream at all."""
