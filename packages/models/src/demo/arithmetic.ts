const NUMBER = String.raw`-?\d+(?:\.\d+)?`;

/** Ways to say it in words, and the expression that is meant. */
const WORDS: readonly [RegExp, string][] = [
  [new RegExp(String.raw`\badd\s+(${NUMBER})\s+(?:and|to|plus)\s+(${NUMBER})`, 'gi'), '$1 + $2'],
  [new RegExp(String.raw`\b(?:the\s+)?sum\s+of\s+(${NUMBER})\s+and\s+(${NUMBER})`, 'gi'), '$1 + $2'],
  [new RegExp(String.raw`\b(?:the\s+)?product\s+of\s+(${NUMBER})\s+and\s+(${NUMBER})`, 'gi'), '$1 * $2'],
  [new RegExp(String.raw`\b(?:the\s+)?difference\s+(?:of|between)\s+(${NUMBER})\s+and\s+(${NUMBER})`, 'gi'), '$1 - $2'],
  [new RegExp(String.raw`\bmultiply\s+(${NUMBER})\s+(?:by|and|with)\s+(${NUMBER})`, 'gi'), '$1 * $2'],
  [new RegExp(String.raw`\bdivide\s+(${NUMBER})\s+by\s+(${NUMBER})`, 'gi'), '$1 / $2'],
  [new RegExp(String.raw`\bsubtract\s+(${NUMBER})\s+from\s+(${NUMBER})`, 'gi'), '$2 - $1'],
  [new RegExp(String.raw`(${NUMBER})\s*(?:%|percent)\s+of\s+(${NUMBER})`, 'gi'), '$1 / 100 * $2'],
  [/(\d|\))\s+(?:to the power of)\s+(?=[\d(-])/gi, '$1 ^ '],
  [/(\d|\))\s+squared\b/gi, '$1 ^ 2'],
  [/(\d|\))\s*(?:\btimes\b|\bmultiplied by\b|\bx\b|×)\s*(?=[\d(-])/gi, '$1 * '],
  [/(\d|\))\s*(?:\bdivided by\b|÷)\s*(?=[\d(-])/gi, '$1 / '],
  [/(\d|\))\s*\bplus\b\s*(?=[\d(-])/gi, '$1 + '],
  [/(\d|\))\s*(?:\bminus\b|−)\s*(?=[\d(-])/gi, '$1 - '],
];

const MAX_EXPRESSION = 200;

export function withoutNumberWords(text: string): string {
  return WORDS.reduce((changed, [said, meant]) => changed.replace(said, meant), text);
}

/** The first thing in a text that can be worked out, such as `6 * 7`; a lone number is nothing to work out. */
export function expressionIn(text: string): string | undefined {
  for (const match of text.matchAll(/(?<![\w./-])[-(]*\d[\d.\s()+\-*/^%]*/g)) {
    const [run] = match;
    if (run.length > MAX_EXPRESSION) continue;
    if (/\S$/.test(run) && /[\w/]/.test(text[match.index + run.length] ?? '')) continue;
    const expression = run.replace(/[\s.]+$/, '').trim();
    if (/[\d)]\s*[-+*/^%]/.test(expression) && evaluate(expression) !== undefined) return expression;
  }
  return undefined;
}

/** `+ - * / % ^`, parentheses and the usual precedence; nothing if it is not well formed or has no finite value. */
export function evaluate(expression: string): number | undefined {
  const tokens = expression.match(/\d+(?:\.\d+)?|[-+*/%^()]|\S/g) ?? [];
  let at = 0;

  const sum = (): number => {
    let value = product();
    while (tokens[at] === '+' || tokens[at] === '-') value += tokens[at++] === '+' ? product() : -product();
    return value;
  };
  const product = (): number => {
    let value = signed();
    for (;;) {
      const sign = tokens[at];
      if (sign !== '*' && sign !== '/' && sign !== '%') return value;
      at++;
      const other = signed();
      value = sign === '*' ? value * other : sign === '/' ? value / other : value % other;
    }
  };
  const signed = (): number => {
    if (tokens[at] !== '-') return power();
    at++;
    return -signed();
  };
  const power = (): number => {
    const base = atom();
    if (tokens[at] !== '^') return base;
    at++;
    return base ** signed();
  };
  const atom = (): number => {
    const token = tokens[at++];
    if (token !== '(') return token !== undefined && /^\d/.test(token) ? Number(token) : NaN;
    const value = sum();
    return tokens[at++] === ')' ? value : NaN;
  };

  const value = sum();
  return at === tokens.length && Number.isFinite(value) ? Number(value.toPrecision(12)) : undefined;
}
