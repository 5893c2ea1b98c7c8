export { recordModel, replayModel, type ReplayModel } from './cassette.ts';
export { memoryJournal } from '../journal/memory.ts';
export { manualClock, type ManualClock } from './manual-clock.ts';
export {
  scriptedModel,
  type ScriptStep,
  type ScriptedCall,
  type ScriptedModel,
  type ScriptedReply,
} from './scripted-model.ts';
