import { badRequest } from '../api-error.ts';
import { fieldPath } from './fields.ts';

/**
 * Turns away what would trip those who read it later: nesting that exhausts a stack, and the key that names an object's
 * prototype.
 */
export function checkPlain(value: unknown, most: number): void {
  check(value, { at: '', depth: 0, most });
}

interface Place {
  readonly at: string;
  readonly depth: number;
  readonly most: number;
}

function check(value: unknown, place: Place): void {
  if (typeof value !== 'object' || value === null) return;
  const { at, depth, most } = place;
  if (depth > most) {
    throw badRequest(
      `'${at}' lies more than ${most} levels deep. Send JSON that is less nested.`,
      topOf(at),
      'nesting_too_deep',
    );
  }
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      if (typeof item === 'object') check(item, { at: fieldPath(at, [index]), depth: depth + 1, most });
    }
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    if (key === '__proto__') {
      throw badRequest(`'${fieldPath(at, [key])}' is not a name that a field may have. Rename it.`, at || key);
    }
    if (typeof item === 'object') check(item, { at: fieldPath(at, [key]), depth: depth + 1, most });
  }
}

/** The whole path would be as long as the JSON is deep. */
function topOf(path: string): string {
  return path.split(/[.[]/, 1)[0]!;
}
