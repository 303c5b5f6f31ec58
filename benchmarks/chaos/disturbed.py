"""One sweep under its hand of disturbances: `study run FILE --resume` again and again until it exits 0."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random

import psutil

from chaos.commands import CommandFailed, Place, run_quick, start_study
from chaos.disturbances import KINDS, NothingToHit, Scene
from chaos.ends import END_LIMIT_S, Injury, code_problems, innards, word_problems
from chaos.processes import Processes, kill_all, title, wait_until_gone
from chaos.report import Report
from chaos.schedule import Card
from chaos.servers import Server
from chaos.sweeps import Sweep
from chaos.watching import Sight, Watch

_TICK_S = 0.1
_ROUND_LIMIT_S = 900.0
_RECOVERY_LIMIT_S = 180.0
_FLUSH = "tracking flush"
_UNSEEN_LIMIT_POINTS = 20
"""A card that still waits after this many validations strikes all the same."""


@dataclass
class _Round:
    """One driver process. had_work: trials were open when it started. injuries: each with the length of the driver's
    stderr when it struck.
    """

    number: int
    driver: subprocess.Popen[bytes]
    started: float
    had_work: bool
    injuries: list[tuple[Injury, int]] = field(default_factory=list)


@dataclass
class _Leftover:
    """What still lived when its driver had ended."""

    processes: list[psutil.Process]
    since: float
    problems: list[str]


@dataclass
class _Wound:
    """An injury whose end is awaited. block: leaving it ends the outage. before: what was seen when it struck."""

    card: Card
    injury: Injury
    block: ExitStack
    struck: float
    before: Sight
    healed: float | None = None
    is_judged: bool = False


class DisturbedSweep:
    """Runs one sweep; `run` returns its problems, the injuries go to the report. trials: how many it comes to."""

    def __init__(
        self, sweep: Sweep, place: Place, hand: list[Card], *, trials: int, s3: Server, tracking: Server | None,
        processes: Processes, report: Report,
    ) -> None:
        self._sweep, self._place, self._hand, self._trials = sweep, place, list(hand), trials
        self._s3, self._tracking = s3, tracking
        self._processes, self._report = processes, report
        self._random = Random(f"{sweep.name}/{sweep.seed}")
        self._watch = Watch(place.home, sweep.study_name)
        self._began = time.monotonic()
        self._wound: _Wound | None = None
        self._armed: tuple[Card, Sight, float | None] | None = None  # card, seen when armed, when it became due
        self._leftovers: list[_Leftover] = []
        self.problems: list[str] = []
        self.rounds = 0

    @property
    def unused(self) -> list[Card]:
        """Cards the sweep was too short for."""
        return self._hand

    def run(self) -> None:
        """Until the study exits 0, or for as many rounds as a stubborn person would start."""
        limit = 2 * len(self._hand) + 5
        try:
            while self.rounds < limit:
                code = self._one_round()
                if code == 0:
                    self._settle()
                    return
                if code == 2:
                    self._wait_for_the_end_of_the_outage()
            self.problems.append(f"did not end with exit code 0 in {limit} rounds")
        finally:
            self._heal()
            self._processes.end_drivers()

    def _wait_for_the_end_of_the_outage(self) -> None:
        """A start that was refused for it would only be refused again."""
        while self._wound is not None and self._wound.healed is None:
            if time.monotonic() - self._wound.struck >= self._wound.card.lasts_s:
                self._heal()
            time.sleep(_TICK_S)
        self._wound = None

    def _settle(self) -> None:
        """After the last round: outages end, and what waits in the log is exported, as the study asked."""
        self._heal()
        if _FLUSH in self._place.stderr(self.rounds - 1).read_text(errors="replace"):
            try:
                run_quick(self._place.env, *_FLUSH.split(), str(self._place.study_file))
            except CommandFailed as error:
                self.problems.append(str(error))
        self._check_leftovers(wait_s=END_LIMIT_S)

    def _one_round(self) -> int:
        driver = start_study(self._place, self.rounds, self._processes)
        had_work = self._watch.look().closed < self._trials
        this = _Round(self.rounds, driver, time.monotonic(), had_work)
        self.rounds += 1
        self._arm_at_start()
        while driver.poll() is None:
            if time.monotonic() - this.started > _ROUND_LIMIT_S:
                self.problems.append(f"round {this.number}: still running after {_ROUND_LIMIT_S:g} s, killed")
                self._processes.kill(driver)
            self._tick(this)
            time.sleep(_TICK_S)
        self._end(this)
        return int(driver.returncode)

    def _tick(self, this: _Round) -> None:
        now, sight = time.monotonic(), self._watch.look()
        self._check_leftovers(wait_s=0.0)
        if self._wound is not None:
            self._watch_over(self._wound, this, now, sight)
        elif self._armed is not None:
            self._strike_when_due(this, now, sight)
        elif this.had_work:
            self._arm(sight)

    # ---- arming and striking

    def _arm_at_start(self) -> None:
        """A card for the start of a driver: the first start always gets one, later ones now and then."""
        if self._wound is None and (self.rounds == 1 or self._random.random() < 0.4):
            self._take(("start",), Sight())

    def _arm(self, sight: Sight) -> None:
        """While trials run, cards for that; when there are none, starts that found no driver; at last, the end."""
        if sight.closed >= self._trials:
            self._take(("end",), sight)
        elif not self._take(("opened", "validation", "checkpoint", "closed"), sight) and self._take(("start",), sight):
            assert self._armed is not None
            self._armed = (replace(self._armed[0], phase="validation", delay_s=0.0), sight, None)

    def _take(self, phases: tuple[str, ...], sight: Sight) -> bool:
        card = next((card for card in self._hand if card.phase in phases), None)
        if card is None:
            return False
        self._hand.remove(card)
        self._armed = (card, sight, None)
        return True

    def _strike_when_due(self, this: _Round, now: float, sight: Sight) -> None:
        assert self._armed is not None
        card, since, due = self._armed
        if due is None:
            is_late = sight.points >= since.points + _UNSEEN_LIMIT_POINTS
            if card.is_due(since, sight, self._trials) or is_late:
                started = this.started if card.phase == "start" else now
                self._armed = (card, since, started + card.delay_s)
            return
        if now >= due:
            self._strike(card, this, sight)

    def _strike(self, card: Card, this: _Round, sight: Sight) -> None:
        scene = Scene(
            driver=this.driver, ours=self._ours(), home=self._place.home, database=self._place.database,
            s3=self._s3, tracking=self._tracking, random=self._random,
        )
        offset, block, now = self._said(this), ExitStack(), time.monotonic()
        try:
            block.enter_context(KINDS[card.kind].strike(scene))
        except (NothingToHit, psutil.Error):
            return  # the victim is not there; the next tick looks again
        injury = Injury(
            card.number, card.kind, card.phase, self._sweep.name, this.number, struck_s=now - self._began,
            lasted_s=card.lasts_s,
        )
        this.injuries.append((injury, offset))
        self._wound, self._armed = _Wound(card, injury, block, now, sight), None

    # ---- what comes of it

    def _watch_over(self, wound: _Wound, this: _Round, now: float, sight: Sight) -> None:
        kind, since = KINDS[wound.card.kind], now - wound.struck
        if wound.healed is None and since >= wound.card.lasts_s:
            self._heal()
        if wound.is_judged:  # its driver has ended, the outage went on into this one
            if wound.healed is not None:
                self._wound = None
            return
        if kind.must_end:
            if since > END_LIMIT_S:
                wound.injury.in_time = False
                wound.injury.problems.append(f"driver still running {END_LIMIT_S:g} s later, killed")
                self._processes.kill(this.driver)
            return
        if wound.healed is None:
            return
        if sight.points > wound.before.points or sight.closed > wound.before.closed:
            self._judge(wound, "went on", now - wound.healed)
        elif now - wound.healed > _RECOVERY_LIMIT_S:
            wound.injury.problems.append(f"no progress within {_RECOVERY_LIMIT_S:g} s")
            self._judge(wound, "stood still", now - wound.healed)

    def _heal(self) -> None:
        """Ends the outage, if one is on. What was seen until then does not count as recovery."""
        if self._wound is not None and self._wound.healed is None:
            self._wound.block.close()
            self._wound.healed = time.monotonic()
            self._wound.injury.lasted_s = self._wound.healed - self._wound.struck if self._wound.card.lasts_s else 0.0
            self._wound.before = self._watch.look()

    def _judge(self, wound: _Wound, outcome: str, seconds: float) -> None:
        wound.injury.outcome, wound.injury.seconds, wound.is_judged = outcome, seconds, True
        if wound.healed is not None:
            self._wound = None

    def _end(self, this: _Round) -> None:
        """The driver has ended: how long that took, whether the code says why, who stayed behind, what it said."""
        now, code = time.monotonic(), int(this.driver.returncode)
        wound = self._wound
        if wound is not None and not wound.is_judged:
            self._judge_end(wound, code, now)
        elif code != 0 and this.injuries:
            this.injuries[-1][0].outcome += f", later ended, exit code {code}"
        elif code != 0:
            self.problems.append(f"round {this.number}: exit code {code} although nothing disturbed it")
        if wound is not None and not wound.card.lasts_s:
            self._wound = None
        if self._armed is not None:
            self._hand.insert(0, self._armed[0])
            self._armed = None
        left = self._ours()
        if left:
            problems = this.injuries[-1][0].problems if this.injuries else self.problems
            self._leftovers.append(_Leftover(left, now, problems))
        self._read_stderr(this)

    def _check_leftovers(self, *, wait_s: float) -> None:
        """Processes of ended drivers must go within 60 s. Those that do not are named and killed."""
        for leftover in list(self._leftovers):
            left = wait_until_gone(leftover.processes, wait_s)
            if left and time.monotonic() - leftover.since < END_LIMIT_S:
                leftover.processes = left
                continue
            self._leftovers.remove(leftover)
            if left:
                names = ", ".join(sorted({title(each)[:60] for each in left}))
                leftover.problems.append(f"{len(left)} processes stayed behind for {END_LIMIT_S:g} s: {names}")
            kill_all(left)

    def _judge_end(self, wound: _Wound, code: int, now: float) -> None:
        injury, kind = wound.injury, KINDS[wound.card.kind]
        injury.exit_code = code
        is_over = wound.before.closed >= self._trials
        if injury.in_time:
            injury.problems += code_problems(kind, code, at_start=injury.phase == "start", is_over=is_over)
        self._judge(wound, f"ended, exit code {code}", now - wound.struck)

    def _read_stderr(self, this: _Round) -> None:
        """Cuts the driver's stderr at the strikes, gives each injury its part and judges it."""
        text = self._place.stderr(this.number).read_bytes()
        cuts = [offset for _, offset in this.injuries] + [len(text)]
        before = innards(text[: cuts[0]].decode(errors="replace"))
        if before:
            self.problems.append(f"round {this.number}: says {before[0][:150]}")
        for (injury, offset), until in zip(this.injuries, cuts[1:], strict=True):
            injury.stderr = text[offset:until].decode(errors="replace")
            injury.problems += word_problems(KINDS[injury.kind], injury)
            self._report.add(injury)

    def _ours(self) -> list[psutil.Process]:
        """The processes of the latest driver, without what earlier ones left."""
        earlier = {process for leftover in self._leftovers for process in leftover.processes}
        return [process for process in self._processes.of_drivers() if process not in earlier]

    def _said(self, this: _Round) -> int:
        return self._place.stderr(this.number).stat().st_size
