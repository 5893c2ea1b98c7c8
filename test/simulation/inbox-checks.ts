import type { Disk } from './disk.ts';
import type { Process } from './machine.ts';
import { Violation } from './violation.ts';

/** What becomes of the requests of one process to another, which drives a run. */
export interface InboxChecks {
  readonly onCommit: (process: Process) => void;
  readonly onPowerFailure: () => void;
}

interface Sent {
  readonly at: number;
  /** How far the clock of its process was from the right time. */
  readonly offset: number;
  isTaken: boolean;
}

interface InboxParts {
  readonly disk: Disk;
  readonly now: () => number;
  /** For how long whoever has sent a request waits until it is taken. */
  readonly patienceMs: number;
  readonly cover: (what: string) => void;
  readonly report: (failure: Error) => void;
}

export function createInboxChecks({ disk, now, patienceMs, cover, report }: InboxParts): InboxChecks {
  const find = disk.prepare('SELECT id, run, is_taken FROM inbox');
  let requests = new Map<number, Sent>();

  /** Nobody waits for a request any more when the patience is over. Its age is measured with the clocks of two hosts. */
  function checkTaken(run: string, { at, offset }: Sent, { name, host }: Process): void {
    const most = patienceMs + Math.abs(host.offset - offset) + 1;
    const age = now() - at;
    cover('request in the inbox');
    // Code under test would catch the exception.
    if (age > most) report(new Violation('inbox', `${name} takes a request for run ${run}, which is ${age} ms old`));
  }

  return {
    onCommit(process) {
      if (!disk.wrote('inbox')) return;
      const stored = new Map<number, Sent>();
      for (const { id, run, is_taken } of find.all()) {
        const known = requests.get(id as number);
        const sent = known ?? { at: now(), offset: process.host.offset, isTaken: false };
        stored.set(id as number, sent);
        if (is_taken !== 1 || sent.isTaken) continue;
        sent.isTaken = true;
        checkTaken(run as string, sent, process);
      }
      requests = stored;
    },
    onPowerFailure() {
      const stored = new Map(find.all().map(({ id, is_taken }) => [id as number, is_taken === 1]));
      for (const [id, sent] of requests) {
        const isTaken = stored.get(id);
        if (isTaken === undefined) requests.delete(id);
        else sent.isTaken = isTaken;
      }
    },
  };
}
