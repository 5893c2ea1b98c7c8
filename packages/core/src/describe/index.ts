export {
  callEffect,
  contentText,
  entryLines,
  shownEntries,
  shownEntry,
  verdictText,
  type EntryLine,
  type ShownEntry,
  type Tone,
} from './entry-lines.ts';
export { costText, durationText, errorText, outcomeDetail, plural, shortId, usageText, waitingText } from './texts.ts';
