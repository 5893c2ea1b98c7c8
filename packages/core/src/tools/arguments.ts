export type Parsed = { readonly type: 'parsed'; readonly value: unknown; readonly repaired?: string } | Problem;

export interface Problem {
  readonly type: 'problem';
  readonly problem: string;
}

/**
 * Reads the JSON text of a call. Repair is harmless only: code fences, a BOM, trailing commas, bare control characters.
 * It never closes a string, an array or an object, because a tool never runs on guessed arguments; and where the reply
 * was `cut` off there is no repair at all, since what can be read may be the beginning of something else.
 */
export function parseArguments(text: string, cut: boolean): Parsed {
  if (text.trim() === '' && !cut) return { type: 'parsed', value: {}, repaired: '{}' };
  const strict = parse(text);
  if (strict.type === 'parsed') return objectOnly(strict);
  if (cut)
    return { type: 'problem', problem: 'The reply was cut off in the middle of the call. Make the call shorter.' };
  const repaired = repair(text);
  const second = parse(repaired);
  if (second.type === 'parsed') return objectOnly({ ...second, repaired });
  return { type: 'problem', problem: `Its arguments are not valid JSON: ${second.problem}. Send them again in full.` };
}

function parse(text: string): Parsed {
  try {
    return { type: 'parsed', value: JSON.parse(text) };
  } catch (error) {
    return { type: 'problem', problem: shortened((error as Error).message) };
  }
}

/** The engine quotes the text it could not read, which may be large. */
function shortened(message: string): string {
  return message.length <= 200 ? message : `${message.slice(0, 200)}…`;
}

function objectOnly(parsed: Extract<Parsed, { type: 'parsed' }>): Parsed {
  const { value } = parsed;
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return parsed;
  const kind = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`;
  return { type: 'problem', problem: `Its arguments are ${kind}, and must be a JSON object.` };
}

function repair(text: string): string {
  const bare = unfenced(text.replace(/^\uFEFF/, '').trim());
  const pieces: string[] = [];
  let inString = false;
  let from = 0;
  for (let i = 0; i < bare.length; i++) {
    const char = bare[i]!;
    if (inString) {
      if (char === '\\') i++;
      else if (char === '"') inString = false;
      else if (char < ' ') {
        pieces.push(bare.slice(from, i), escaped(char));
        from = i + 1;
      }
    } else if (char === '"') inString = true;
    else if (char === ',' && closesNext(bare, i + 1) && !opensBefore(bare, i - 1)) {
      pieces.push(bare.slice(from, i));
      from = i + 1;
    }
  }
  pieces.push(bare.slice(from));
  return pieces.join('');
}

function unfenced(text: string): string {
  if (!text.startsWith('```')) return text;
  const body = text.slice(3).replace(/^[a-zA-Z]+/, '');
  return (body.endsWith('```') ? body.slice(0, -3) : body).trim();
}

function closesNext(text: string, from: number): boolean {
  let i = from;
  while (i < text.length && ' \t\r\n'.includes(text[i]!)) i++;
  return text[i] === '}' || text[i] === ']';
}

/** A comma after which nothing comes is one too many; before which nothing came, something is missing. */
function opensBefore(text: string, from: number): boolean {
  let i = from;
  while (i >= 0 && ' \t\r\n'.includes(text[i]!)) i--;
  return text[i] === '{' || text[i] === '[';
}

function escaped(control: string): string {
  return JSON.stringify(control).slice(1, -1);
}
