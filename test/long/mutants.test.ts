import { test } from 'vitest';
import { expectFound, MUTANTS } from '../invariants/mutants.ts';

test.each(MUTANTS)('$property finds: $name', expectFound);
