type Place = 'user' | 'assistant' | 'tool' | 'result';
type Loose = Readonly<Record<string, unknown>>;

/** Which parts may stand where: in the messages of a role, or in a result. */
const PARTS: Readonly<Record<Place, readonly string[]>> = {
  user: ['text', 'image', 'file'],
  assistant: ['text', 'reasoning', 'tool-call'],
  tool: ['tool-result'],
  result: ['text', 'image', 'file', 'error'],
};

/** Whether something that came from outside is a part that may stand there, with everything that the loop looks at. */
function isPartOf(place: Place, part: unknown): boolean {
  if (!isObject(part) || !PARTS[place].includes(part['type'] as string)) return false;
  const hasTexts = (...names: readonly string[]): boolean => names.every((name) => typeof part[name] === 'string');
  switch (part['type']) {
    case 'tool-call':
      return hasTexts('id', 'name', 'arguments');
    case 'tool-result':
      return hasTexts('callId', 'name') && arePartsOf('result', part['content']);
    case 'image':
    case 'file':
      return hasTexts('mediaType') && isSource(part['source']);
    default:
      return hasTexts('text');
  }
}

export function arePartsOf(place: Place, parts: unknown): boolean {
  return Array.isArray(parts) && parts.every((part) => isPartOf(place, part));
}

function isSource(source: unknown): boolean {
  if (!isObject(source)) return false;
  return typeof source[source['type'] === 'data' ? 'data' : 'url'] === 'string';
}

function isObject(value: unknown): value is Loose {
  return typeof value === 'object' && value !== null;
}
