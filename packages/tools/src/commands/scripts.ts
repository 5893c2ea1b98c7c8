/* Programs in the languages of sed and awk. They are known only if all that they do is to select, replace and print text. */

/** A regular expression between delimiters. Versions differ in whether a delimiter inside brackets counts, so there is none. */
function pattern(delimiter: string): string {
  const others = String.raw`\][\\${delimiter}\n`;
  return String.raw`(?:[^[\\${delimiter}\n]|\\[^\n]|\[\^?[^^${others}][^${others}]*\])*`;
}

const SUBSTITUTION = [...'/|,#@']
  .map((one) => String.raw`s[${one}]${pattern(one)}[${one}](?:[^\\${one}\n]|\\[^\n])*[${one}][gpIi\d]*`)
  .join('|');
const ADDRESS = String.raw`(?:\d+|\$|/${pattern('/')}/I?)`;
const SED_COMMAND = String.raw`(?:${ADDRESS}(?:,(?:${ADDRESS}|\+\d+))?[ \t]*!?)?[ \t]*(?:[pdq=]|${SUBSTITUTION})`;
const SED = new RegExp(String.raw`^[ \t\n]*${SED_COMMAND}(?:[ \t]*[;\n][ \t\n]*${SED_COMMAND})*[ \t]*;?[ \t\n]*$`);

export function isSed(script: string): boolean {
  return SED.test(script);
}

/** Some versions call a function that has no parentheses: `system` runs the line. */
const AWK_WORDS =
  /^(BEGIN|END|NR|NF|FNR|FS|OFS|RS|ORS|(if|for|while|print|printf|length|substr|split|sub|gsub|match|index|sprintf|tolower|toupper|int)[ \t]*\(?|(?!getline|system|close|fflush)[a-z]\w*)$/;

/** Without patterns between slashes, which only some versions end in the same way: they need two. */
export function isAwk(program: string): boolean {
  if (program.split('/').length > 2) return false;
  const code = program.replaceAll(/"(?:[^"\\\n]|\\[^\n])*"/g, ' 0 ');
  const words = code.match(/[A-Za-z_]\w*([ \t]*\()?/g) ?? [];
  return (
    /^[\w \t\n+*%^!=<>~$,;:?.(){}[\]&|/-]*$/.test(code) &&
    words.every((word) => AWK_WORDS.test(word)) &&
    // A pipe, and what would be the name of a file.
    !/(?<!\|)\|(?!\|)|print[^]*>|::/.test(code)
  );
}
