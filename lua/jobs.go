package lua

import _ "embed"

var (
	//go:embed prelude_job.lua
	preludeJob string
	//go:embed prelude_jobturn.lua
	preludeJobTurn string
	//go:embed prelude_jobrun.lua
	preludeJobRun string
	//go:embed prelude_jobend.lua
	preludeJobEnd string

	//go:embed job_put.lua
	jobPutBody string
	//go:embed job_drop.lua
	jobDropBody string
	//go:embed job_read.lua
	jobReadBody string
	//go:embed job_list.lua
	jobListBody string
	//go:embed job_submit.lua
	jobSubmitBody string
	//go:embed job_work.lua
	jobWorkBody string
	//go:embed job_check.lua
	jobCheckBody string
	//go:embed job_claim.lua
	jobClaimBody string
	//go:embed job_renew.lua
	jobRenewBody string
	//go:embed job_done.lua
	jobDoneBody string
	//go:embed job_back.lua
	jobBackBody string
	//go:embed job_void.lua
	jobVoidBody string
	//go:embed job_cancel.lua
	jobCancelBody string
)

// The scripts of files, batches and their jobs (see package batch). All have one
// key, the root, in front of whose other keys it stands.
var (
	JobPut    = document("job_put", preludeJob+jobPutBody)
	JobDrop   = document("job_drop", preludeJob+jobDropBody)
	JobRead   = document("job_read", preludeJob+jobReadBody)
	JobList   = document("job_list", preludeJob+jobListBody)
	JobSubmit = document("job_submit", preludeJob+jobSubmitBody)
	JobWork   = document("job_work", preludeJob+jobWorkBody)
	JobCheck  = document("job_check", preludeJob+preludeJobTurn+jobCheckBody)
	JobClaim  = fence(document("job_claim", preludeJob+preludeJobTurn+preludeJobRun+jobClaimBody))
	JobRenew  = document("job_renew", preludeJob+preludeJobTurn+preludeJobRun+jobRenewBody)
	JobDone   = document("job_done", preludeJob+preludeJobTurn+preludeJobRun+preludeJobEnd+jobDoneBody)
	JobBack   = document("job_back", preludeJob+preludeJobTurn+preludeJobRun+jobBackBody)
	JobVoid   = document("job_void", preludeJob+preludeJobEnd+jobVoidBody)
	JobCancel = document("job_cancel", preludeJob+jobCancelBody)
)
