import type { Message } from '@treadle/core';
import { requestedSkills, skillsSection, withSkillText, type Skill } from '@treadle/core/skills';
import { badRequest } from '../../api-error.ts';
import type { Conversation } from '../../history/conversation.ts';
import { messageText } from './attachments.ts';

/** What a new message is answered with. */
interface ChatInput {
  readonly messages: readonly Message[];
  readonly system: readonly string[];
  readonly carried: Conversation['carried'];
}

/**
 * A message that begins with a slash and the name of a skill activates it: the model gets its text with the message, and the
 * conversation is narrowed from then on. `isOffered`: the model can activate skills, so it learns of them. Rejects with a 400 if
 * the user may not activate the skill.
 */
export function withChatSkills(
  { messages, system, carried }: ChatInput,
  { skills, isOffered }: { readonly skills: readonly Skill[]; readonly isOffered: boolean },
): ChatInput {
  const section = isOffered ? skillsSection(skills) : '';
  const told = { messages, system: section === '' ? system : [...system, section], carried };
  const last = messages.at(-1);
  if (last?.role !== 'user') return told;
  const [, name, task = ''] = /^\/([a-z0-9-]+)(?:\s+(.*))?$/s.exec(messageText(last).trim()) ?? [];
  if (name === undefined || !skills.some((skill) => skill.name === name)) return told;
  const activation = requestedSkills(skills, [name], task);
  if (activation.type === 'refused') throw badRequest(activation.reason, 'message');
  return {
    ...told,
    messages: [...messages.slice(0, -1), withSkillText(last, activation.text)],
    carried: { ...carried, narrow: [...(carried?.narrow ?? []), ...activation.narrow] },
  };
}
