export {
  EVENT_STREAM_HEADERS,
  eventFrame,
  KEEP_ALIVE_FRAME,
  shownResult,
  toEventStreamResponse,
  toTextResponse,
  type EventStreamInit,
  type Live,
  type StreamInit,
} from './responses.ts';
export { agUiEvents, toAgUiResponse, type AgUiEvents, type AgUiIds } from './ag-ui.ts';
export type { FrontEndFrames, UiApproval, UiEnding, UiFinish, UiQuestion, UiResult } from './front-ends.ts';
export {
  approvalOf,
  toUIMessageStreamResponse,
  uiChunks,
  UI_MESSAGE_STREAM_HEADERS,
  type UiChunks,
} from './ui-chunks.ts';
