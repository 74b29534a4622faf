package lua

import _ "embed"

// Scripts about the documents of workspaces. Their keys are hw:{hw-ws}:..., all
// in one slot of their own; they live until they are replaced.
var (
	//go:embed ws_read.lua
	wsRead string
	//go:embed ws_write.lua
	wsWrite string
	//go:embed ws_changes.lua
	wsChanges string

	WorkspaceRead    = document("ws_read", wsRead)
	WorkspaceWrite   = document("ws_write", wsWrite)
	WorkspaceChanges = document("ws_changes", wsChanges)
)
