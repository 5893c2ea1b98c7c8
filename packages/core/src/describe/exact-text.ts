/*
 * Characters that could hide a part of a text, by class: controls, those without a glyph of their own (formats, private and
 * unassigned ones, halves of pairs, everything that is ignored by default, such as fillers and variation selectors), and
 * separators other than a space. The last class is a list: these have a glyph, and it is blank. Tab, newline and space stay.
 */
const HIDING =
  /[^\P{C}\t\n]|[^\P{Z} ]|[\p{Default_Ignorable_Code_Point}\u2800\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}]/gu;

/**
 * A text that somebody is about to approve. Characters that could hide a part of it are escaped, as `\u200b` or `\u{e0041}`.
 * Every place that shows an approval uses it.
 */
export function exactText(text: string): string {
  return text.replace(HIDING, (char) => {
    if (char === '\r') return '\\r';
    const code = char.codePointAt(0)!.toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
  });
}

/** A text without these characters, for texts of files that a model gets. What people cannot see must not reach it. */
export function withoutHidden(text: string): string {
  return text.replace(HIDING, '');
}
