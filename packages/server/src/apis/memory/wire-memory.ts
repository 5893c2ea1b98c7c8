import { textAt, type MemoryItem, type MemoryLevel } from '@treadle/core/memory';
import type { WireMemory } from './wire.ts';

/** An item as `/v1/memory` answers. */
export function wireMemory(item: MemoryItem, level: MemoryLevel): WireMemory {
  const { id, type, content, tags, metadata, at, runId, session, agent, subject, outside } = item;
  return {
    object: 'memory',
    id,
    event_type: type,
    content: textAt(level, content),
    tags,
    metadata,
    timestamp: new Date(at).toISOString(),
    run_id: runId ?? null,
    session_id: session ?? null,
    agent_name: agent ?? null,
    subject: subject ?? null,
    outside: outside ?? false,
    key: item.type === 'note' ? item.key : null,
    scope: item.type === 'note' ? item.scope : null,
  };
}
