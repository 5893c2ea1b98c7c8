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
  switch (part['type']) {
    case 'tool-call':
      return isText(part['id']) && isText(part['name']) && isText(part['arguments']);
    case 'tool-result':
      return isText(part['callId']) && isText(part['name']) && arePartsOf('result', part['content']);
    case 'image':
    case 'file':
      return isText(part['mediaType']) && isSource(part['source']);
    default:
      return isText(part['text']);
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
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
