package lua

import _ "embed"

// The script by which replicas find each other. Its key hw:{hw-fleet}:addresses
// lives as long as any of them renews its entry.
var (
	//go:embed fleet_meet.lua
	fleetMeet string

	FleetMeet = document("fleet_meet", fleetMeet)
)
