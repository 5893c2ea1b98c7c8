import { activateSkills, skillText, type Skill } from '@treadle/core/skills';
import type { McpOptions } from '@treadle/server';

/** They are registered for each request. */
const MAX_OFFERED = 1_000;

/**
 * Skills for MCP clients: those that the user may activate are prompts, and all that are not disabled are resources. The client
 * decides which tools its model has, so nothing is narrowed there.
 */
export function skillRegistry(skills: readonly Skill[]): Pick<McpOptions, 'register'> {
  const offered = skills.filter(({ status }) => status !== 'disabled').slice(0, MAX_OFFERED);
  const register: McpOptions['register'] = ({ registerPrompt, registerResource }) => {
    for (const skill of offered) {
      const { name, description, invocation } = skill;
      const uri = `treadle://skills/${name}`;
      registerResource(name, uri, { description, mimeType: 'text/markdown' }, () => ({
        contents: [{ uri, mimeType: 'text/markdown', text: skillText(skill) }],
      }));
      if (invocation === 'model') continue;
      registerPrompt(name, { description }, () => {
        const activation = activateSkills(skills, [name], { by: 'user' });
        const text = activation.type === 'activated' ? activation.text : activation.reason;
        return { messages: [{ role: 'user', content: { type: 'text', text } }] };
      });
    }
  };
  return { register };
}
