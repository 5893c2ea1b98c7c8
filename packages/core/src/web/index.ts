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
export {
  approvalOf,
  uiChunks,
  UI_MESSAGE_STREAM_HEADERS,
  type UiChunks,
  type UiEnding,
  type UiFinish,
  type UiResult,
} from './ui-chunks.ts';
export { toUIMessageStreamResponse } from './ui-stream.ts';
