export {
  callEffect,
  contentText,
  entryLines,
  entryReader,
  shownEntries,
  verdictText,
  type EntryLine,
  type ShownEntry,
  type Tone,
} from './entry-lines.ts';
export { exactText, withoutHidden } from './exact-text.ts';
export { costText, durationText, errorText, outcomeDetail, plural, shortId, usageText, waitingText } from './texts.ts';
