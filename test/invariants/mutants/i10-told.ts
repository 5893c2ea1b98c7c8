import type { Shell } from '../core-functions.ts';
import type { Replacement } from '../mutable-core.ts';
import { mutant } from './mutant.ts';

/** I10 what the methods of a run say about a fact from outside is what the journal has. */
export const told = [
  mutant(
    'I10',
    'a fact that does not apply is acknowledged',
    'startShell',
    changed((shell) => ({
      record: async (event) => {
        await shell.record(event);
        return true;
      },
    })),
  ),
  mutant(
    'I10',
    'a fact that was recorded is refused',
    'startShell',
    changed((shell) => ({
      record: async (event) => (await shell.record(event)) && event.type !== 'narrowing-lifted',
    })),
  ),
  mutant(
    'I10',
    'what was asked for early is done twice',
    'startShell',
    changed((shell) => ({ begin: (events, early) => shell.begin(events, [...early, ...early]) })),
  ),
  mutant(
    'I10',
    'what was asked for early is forgotten',
    'startShell',
    changed((shell) => ({ begin: (events) => shell.begin(events, []) })),
  ),
  mutant(
    'I10',
    'a fact is acknowledged before it is durable',
    'startShell',
    changed((shell) => ({
      record: async (event) => {
        const before = shell.state();
        void shell.record(event).catch(() => {});
        return shell.state() !== before;
      },
    })),
  ),
];

function changed(change: (shell: Shell) => Partial<Shell>): Replacement<'startShell'> {
  return (original) =>
    (...args) => {
      const shell = original(...args);
      return { ...shell, ...change(shell) };
    };
}
