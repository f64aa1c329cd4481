// What a runtime reports of each event, as its dialect has it: types for those who call `runHooks` from code.
// Types alone: what really came in is read by the dialects, and a payload that is not one of these is refused there.
import type { JsonObject } from './words.ts';

/** Ours, in any dialect: ids that join the steps of one call in the ledger. */
export interface JoinedBy {
  /** The same before and after one call; made from the call where it is absent */
  readonly action_id?: string;
  readonly trace_id?: string;
}

/** Managed agents, `pre_tool_execution`. */
export interface ManagedBefore extends JoinedBy {
  readonly tool_call: { readonly name: string; readonly args: JsonObject };
  readonly environment_id?: string;
}

/** Managed agents, `post_tool_execution`. */
export interface ManagedAfter extends ManagedBefore {
  /** Present only where the tool failed or its command wrote to stderr */
  readonly error?: string;
}

/** What every event of the desktop agent holds. */
export interface DesktopCommon extends JoinedBy {
  readonly conversationId: string;
  readonly workspacePaths: readonly string[];
  readonly transcriptPath?: string;
  readonly artifactDirectoryPath?: string;
  readonly modelName?: string;
}

/** Desktop agent, `PreToolUse`. */
export interface DesktopBefore extends DesktopCommon {
  readonly toolCall: { readonly name: string; readonly args: JsonObject };
  readonly stepIdx: number;
}

/** Desktop agent, `PostToolUse`. */
export interface DesktopAfter extends DesktopBefore {
  /** Empty where the tool succeeded */
  readonly error?: string;
}

/** Desktop agent, `PreInvocation` and `PostInvocation`. */
export interface DesktopInvocation extends DesktopCommon {
  /** The first is 0 */
  readonly invocationNum: number;
  readonly initialNumSteps: number;
}

/** Desktop agent, `Stop`. */
export interface DesktopStop extends DesktopCommon {
  /** The first is 1 */
  readonly executionNum: number;
  readonly terminationReason: string;
  readonly error?: string;
  readonly fullyIdle: boolean;
}

/** Coding agent, `PreToolUse` and `PostToolUse`. */
export interface SettingsToolUse extends JoinedBy {
  readonly tool_name: string;
  readonly tool_input: JsonObject;
  readonly tool_use_id?: string;
  readonly tool_response?: unknown;
  readonly session_id?: string;
  readonly transcript_path?: string;
  readonly cwd?: string;
  readonly permission_mode?: string;
  readonly hook_event_name?: string;
}

/** The payload of each event. */
export interface HookPayloads {
  readonly pre_tool_execution: ManagedBefore;
  readonly post_tool_execution: ManagedAfter;
  readonly SessionStart: DesktopCommon;
  readonly PreToolUse: DesktopBefore | SettingsToolUse;
  readonly PostToolUse: DesktopAfter | SettingsToolUse;
  readonly PreInvocation: DesktopInvocation;
  readonly PostInvocation: DesktopInvocation;
  readonly Stop: DesktopStop;
}
