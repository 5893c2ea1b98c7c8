import type { Budget, Budgets } from '@treadle/core/budgets';
import { didYouMean } from '@treadle/core/nearest';
import { CommandError, SUMMARIES, type CommandGroup } from '../command-line/command.ts';
import { followUpCommand, locationOf } from '../command-line/flags.ts';
import { storedCommand } from '../runs/store-access.ts';
import type { Colours } from '../terminal/colours.ts';
import { alignColumns, oneLine } from '../terminal/printable.ts';
import { amountText } from '../terminal/quantities.ts';

const listCommand = storedCommand(
  'list',
  {
    summary: 'List the budgets of the store, what was used of them, and which are suspended',
    flags: { json: { type: 'switch', help: 'Print JSON' } },
    details:
      'RESERVED is what effects in progress may still use, and what effects that never settled keep. With a period, what was used\n' +
      'counts from its beginning, in UTC. Budgets that the configuration does not name any more stay in the store.',
    examples: ['treadle budgets list', "treadle budgets list --json | jq '.[] | select(.suspended)'"],
    emptyStore: ({ json }) => (json ? ['[]'] : []),
    async run({ values, store, colours, print, note }) {
      const budgets = await store.budgets.list();
      await store.durable();
      if (values.json) return print(JSON.stringify(budgets, null, 2));
      if (budgets.length === 0) return note('There are no budgets. [budgets] of treadle.toml defines them.');
      print(budgetTable(budgets, colours));
    },
  },
  'budgets',
);

const suspendCommand = storedCommand(
  'suspend NAME',
  {
    summary: 'Let nothing more draw on a budget',
    flags: { reason: { type: 'text', value: 'TEXT', help: 'Why; runs and clients are told. Required' } },
    details:
      'Applies at once to all servers and commands with the store. Effects in progress go on; the next one is refused, and ends\n' +
      'its run with the reason "budget". A request that cannot begin gets a 429. It stays when the configuration is reloaded.',
    examples: ['treadle budgets suspend team --reason "The provider is down."'],
    async run({ values, args, store: { budgets }, note }) {
      const { reason } = values;
      if (!reason?.trim()) throw new CommandError('Say why with --reason TEXT: runs and clients are told.');
      const name = await knownName(budgets, args[0]!);
      await budgets.suspend(name, reason);
      note(`Suspended ${name}.\nEnd it with: ${followUpCommand(['budgets', 'activate', name], locationOf(values))}`);
    },
  },
  'budgets',
);

const activateCommand = storedCommand(
  'activate NAME',
  {
    summary: 'End the suspension of a budget',
    details: 'Runs that were refused meanwhile have ended. "treadle runs fork" continues a copy of one.',
    examples: ['treadle budgets activate team'],
    async run({ args, store: { budgets }, note }) {
      const name = await knownName(budgets, args[0]!);
      const wasSuspended = (await budgets.get(name))?.suspended !== undefined;
      await budgets.activate(name);
      note(wasSuspended ? `Activated ${name}.` : `${name} is active already.`);
    },
  },
  'budgets',
);

export const budgetsGroup: CommandGroup = {
  name: 'budgets',
  summary: SUMMARIES.budgets,
  commands: [listCommand, suspendCommand, activateCommand],
  notes: ['A server or a command writes the budgets of its configuration into the store when it starts.'],
};

async function knownName(budgets: Budgets, name: string): Promise<string> {
  const names = (await budgets.list()).map((budget) => budget.name);
  if (names.includes(name)) return name;
  const known = names.length === 0 ? 'There are none.' : `Budgets: ${names.join(', ')}.`;
  throw new CommandError(`There is no budget ${JSON.stringify(name)} in the store.${didYouMean(name, names)} ${known}`);
}

const HEAD = ['NAME', 'STATE', 'PERIOD', 'USED', 'RESERVED'];

function budgetTable(budgets: readonly Budget[], colours: Colours): readonly string[] {
  const rows = budgets.map((budget) => [
    oneLine(budget.name, 40),
    budget.suspended === undefined ? 'active' : 'suspended',
    budget.period ?? '',
    amountsText(budget, 'settled'),
    amountsText(budget, 'reserved'),
  ]);
  const [head, ...lines] = alignColumns([HEAD, ...rows]).map((row) => row.join('  ').trimEnd());
  return [
    colours.dim(head!),
    ...lines.flatMap((line, index) => {
      const { suspended } = budgets[index]!;
      return suspended === undefined ? [line] : [line, colours.dim(`  ${oneLine(suspended, 200)}`)];
    }),
  ];
}

/** What was used of each limit, and of what is not limited if there is any. */
function amountsText({ limits, ...totals }: Budget, which: 'settled' | 'reserved'): string {
  const found = Object.entries(totals[which]).flatMap(([name, amount]) => {
    const kind = name as keyof typeof limits;
    const limit = which === 'reserved' ? undefined : limits[kind];
    return amount === 0 && limit === undefined ? [] : [amountText(kind, amount, limit)];
  });
  return found.join(', ');
}
