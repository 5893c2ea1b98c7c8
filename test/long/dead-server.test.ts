import { afterAll, beforeAll, expect, test } from 'vitest';
import { useServeFixture } from '../serve/serve-command.ts';
import { testDatabase, type TestDatabase } from '../store/shared-postgres.ts';

/* `treadle serve` twice on one store, one of which is killed while it drives a run. */

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

const fixture = useServeFixture();

test.each(['PostgreSQL', 'SQLite'])(
  'the run of a server that was killed goes on at the other one: %s',
  async (kind) => {
    const store = kind === 'SQLite' ? '' : `[store]\nurl = "${database.url}"\n`;
    await fixture.configure(store, { hang: 'The beginning' }, { text: ['Done.'] });
    const one = await fixture.serveProcess();
    const other = await fixture.serveProcess();
    const { body } = await one.respond({ input: 'Go', background: true });
    await fixture.provider.answered(1);
    const killedAt = performance.now();
    one.process.child.kill('SIGKILL');
    await fixture.provider.answered(2);
    process.stdout.write(`${kind}: the run went on after ${Math.round(performance.now() - killedAt)} ms\n`);
    for (let status = 'in_progress'; status !== 'completed';) {
      ({ status } = (await other.get(`/v1/responses/${body.id}`)).body);
      expect(['in_progress', 'completed']).toContain(status);
    }
    await other.stop();
  },
);
