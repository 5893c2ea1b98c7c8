import { rmSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { addPrograms, OUTSIDER, outsiderPlace, unreported } from '../policy/outsider.ts';
import { missingPrograms, shellFixture } from '../policy/shell-fixture.ts';

const missing = missingPrograms();
const canRun = needs(`the programs ${missing.join(', ')}`, missing.length === 0);

const fixture = shellFixture();
afterAll(() => fixture[Symbol.dispose]());

describe.skipIf(!canRun)('what is allowed does nothing but what it says', () => {
  test.each(OUTSIDER.filter(({ verdict }) => verdict === 'allow'))('$text: $what', async (line) => {
    const place = outsiderPlace(fixture);
    addPrograms(place);
    expect(await unreported(place, line)).toEqual([]);
    rmSync(place.root, { recursive: true, force: true });
  });
});
