import { ApiError } from '../api-error.ts';

/** Throws a 413 if the texts, images and files in a value have more than `most` characters together. */
export function checkInputSize(value: unknown, at: string, most: number): void {
  const total = charsIn(value);
  if (total <= most) return;
  throw new ApiError(
    413,
    'invalid_request_error',
    `'${at}' holds ${total} characters, and this server takes at most ${most}. Send less of the conversation, or smaller files.`,
    { param: at, code: 'input_too_large' },
  );
}

function charsIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let total = 0;
  for (const part of Object.values(value)) total += charsIn(part);
  return total;
}
