export {
  embedItems,
  MEMORY_LEVELS,
  memoryOn,
  noteId,
  quantised,
  recallText,
  similarityTo,
  textAt,
  type Memory,
  type MemoryLevel,
  type MemoryOptions,
  type NewNote,
  type SearchOptions,
} from './memory.ts';
export {
  memoryLabel,
  MEMORY_TOOLS,
  observationReader,
  observationsOf,
  OFF_LABEL,
  PRIVATE_LABEL,
  usesMemory,
  type ObservationReader,
} from './observations.ts';
export {
  audience,
  audienceOf,
  type Embedder,
  type Forgetting,
  type MemoryFilter,
  type MemoryItem,
  type MemoryPort,
  type MemoryReader,
  type NearVector,
  type Note,
  type NoteScope,
  type Observation,
  type ObservationType,
} from './port.ts';
export { recalledFor, type Recalled, type RecallingRun } from './recall.ts';
export { exposureBy, memoryTools, readerFor, type MemoryOwner } from './tools.ts';
