import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { scriptedOpenAi, type ScriptedOpenAi } from './scripted-openai.ts';

let folder: string;
let provider: ScriptedOpenAi;

beforeEach(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-budgets-')));
  provider = await scriptedOpenAi([{ calls: [{ name: 'glob', arguments: '{"pattern":"*"}' }] }, { text: ['Done.'] }]);
  writeFileSync(
    join(folder, 'treadle.toml'),
    `[models.main]\nmodel = "m"\nbase_url = "${provider.baseURL}"\n[orchestrator]\nbudgets = ["team"]\n` +
      '[budgets.team]\ncalls = 2\nperiod = "month"\nwarn_at = 0.5\n[budgets.unused]\ncost = 50\n',
  );
});
afterEach(async () => {
  await provider.close();
  rmSync(folder, { recursive: true, force: true });
});

const treadle = (...args: readonly string[]): Promise<Printed> => command(args, folder);

test('budgets are listed with what was used, suspended with a reason that runs are told, and activated', async () => {
  expect(await treadle('budgets', 'list', '--json')).toMatchObject({ code: 0, stdout: '[]\n' });
  const run = await treadle('run', 'List the files');
  expect([run.code, run.stderr.match(/^The budget.*/gm)]).toEqual([
    0,
    ['The budget team has little left: 1 of 2 calls are used.'],
  ]);

  const suspended = await treadle('budgets', 'suspend', 'team', '--reason', 'The bill is not paid.');
  expect(suspended).toEqual({
    code: 0,
    stdout: '',
    stderr: 'Suspended team.\nEnd it with: treadle budgets activate team\n',
  });
  const { stdout } = await treadle('budgets', 'list');
  expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['NAME', 'STATE', 'PERIOD', 'USED', 'RESERVED'],
    ['team', 'suspended', 'month', expect.stringMatching(/^30 tokens, 1 of 2 calls(, |$)/)],
    ['', 'The bill is not paid.'],
    ['unused', 'active', '0 of 50 cost'],
    [''],
  ]);
  // Also after the configuration was read again.
  const refused = await treadle('run', 'List the files');
  expect(refused.code).toBe(3);
  expect(refused.stderr).toContain('The budget "team" is suspended: The bill is not paid.');

  expect(await treadle('budgets', 'activate', 'team')).toMatchObject({ code: 0, stderr: 'Activated team.\n' });
  expect(await treadle('budgets', 'activate', 'team')).toMatchObject({ stderr: 'team is active already.\n' });
  const [team] = JSON.parse((await treadle('budgets', 'list', '--json')).stdout) as readonly object[];
  expect(team).toMatchObject({ name: 'team', limits: { calls: 2 }, settled: { calls: 1 } });
  expect(team).not.toHaveProperty('suspended');
});

test('a budget that is not there, and a suspension without a reason, are refused', async () => {
  const missing = await treadle('budgets', 'suspend', 'team', '--reason', 'x');
  expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('There are no runs yet')]);
  await treadle('run', 'List the files');
  const unknown = await treadle('budgets', 'suspend', 'teams', '--reason', 'x');
  expect([unknown.code, unknown.stderr]).toEqual([
    2,
    'treadle: There is no budget "teams" in the store. Did you mean "team"? Budgets: team, unused.\n',
  ]);
  for (const reason of [[], ['--reason', ' ']]) {
    const { code, stderr } = await treadle('budgets', 'suspend', 'team', ...reason);
    expect([code, stderr]).toEqual([2, 'treadle: Say why with --reason TEXT: runs and clients are told.\n']);
  }
});
