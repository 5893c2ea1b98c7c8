import { rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { attempt, ATTACKS, effects } from '../policy/commands-corpus.ts';
import { missingPrograms, shellFixture, type Place } from '../policy/shell-fixture.ts';

const missing = missingPrograms();
const canRun = needs(`the programs ${missing.join(', ')}`, missing.length === 0);

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());

/** Attacks that start nothing but stubs share a place. */
const untouched = fixture.place();

function fresh(place: Place): Place {
  for (const file of [place.log, path.join(place.root, 'output')]) rmSync(file, { force: true });
  return place;
}

describe.skipIf(!canRun)('without a policy, an attack succeeds', () => {
  test.each(ATTACKS.filter(({ how }) => how !== 'judge'))('$trick: $text', async (attack) => {
    const place = attack.how === 'run' ? fixture.place({ repository: attack.text.includes('git') }) : fresh(untouched);
    await attempt(place, attack);
    expect(effects(place, attack)).toBe(true);
  });
});
