package config

import "time"

// Batch is work that may wait: requests held on their connection until their
// turn, and jobs from uploaded files, which outlive connections and replicas.
type Batch struct {
	Enabled             bool          `yaml:"enabled" help:"serve /v1/files and /v1/batches, and run their jobs; needs a Redis that several replicas share, or one replica"`
	DefaultDeadline     time.Duration `yaml:"default_deadline" help:"how long a batch request (x-headway-priority: batch, or a key with batch: true) may wait where x-headway-deadline-ms does not say; also the longest that a batch may take, whatever its completion_window"`
	QueueDepthPerTenant int           `yaml:"queue_depth_per_tenant" help:"batch requests of one tenant that wait here at once, on their connections"`
	MaxFile             Size          `yaml:"max_file" help:"largest file that may be uploaded"`
	MaxFilesPerTenant   int           `yaml:"max_files_per_tenant" help:"uploaded files of one tenant that are kept at once"`
	MaxJobsPerTenant    int           `yaml:"max_jobs_per_tenant" help:"jobs of one tenant that have no result yet, over all its batches"`
	Workers             int           `yaml:"workers" help:"jobs that this replica runs at once; 0: it takes uploads and runs none"`
	Lease               time.Duration `yaml:"lease" help:"how long a job stays with a replica that died before another takes it"`
	Retention           time.Duration `yaml:"retention" help:"how long files, batches and results are kept: uploads from their arrival, the rest from the end of its batch"`
}

// defaultBatch is what the section starts from.
func defaultBatch() Batch {
	return Batch{
		DefaultDeadline: 24 * time.Hour, QueueDepthPerTenant: 1000,
		MaxFile: 32 << 20, MaxFilesPerTenant: 500, MaxJobsPerTenant: 50_000,
		Workers: 8, Lease: 30 * time.Second, Retention: 72 * time.Hour,
	}
}

const (
	// minLease leaves room for a renewal that comes late: it is renewed three
	// times in its length.
	minLease = time.Second
	// maxJobsBound is what one file or tenant may reach: the cost of each job
	// stands in one string of Redis, 10 bytes each.
	maxJobsBound = 1_000_000
	maxWorkers   = 1024
)

// batch checks the bounds of batch work.
func (k *checker) batch() {
	const at = "batch"
	b := k.Batch
	k.positive(at+".default_deadline", b.DefaultDeadline)
	k.atLeast(at+".queue_depth_per_tenant", int64(b.QueueDepthPerTenant), 1)
	k.atLeast(at+".max_file", int64(b.MaxFile), 1024)
	k.atLeast(at+".max_files_per_tenant", int64(b.MaxFilesPerTenant), 1)
	k.atLeast(at+".max_jobs_per_tenant", int64(b.MaxJobsPerTenant), 1)
	k.atLeast(at+".workers", int64(b.Workers), 0)
	k.positive(at+".retention", b.Retention)
	if b.MaxJobsPerTenant > maxJobsBound {
		k.wrong(at+".max_jobs_per_tenant", "write 1000000 or less", "%d is above %d", b.MaxJobsPerTenant, maxJobsBound)
	}
	if b.Workers > maxWorkers {
		k.wrong(at+".workers", "write 1024 or less", "%d is above %d", b.Workers, maxWorkers)
	}
	if b.Lease < minLease {
		k.wrong(at+".lease", "write 1s or more", "%v is below %v: it could not be renewed in time", b.Lease, minLease)
	}
	if b.Enabled && k.Redis.Mode == ModeEmbedded {
		k.warn(at+".enabled", "set redis.mode and the address of a Redis", "files and jobs are lost when this process ends: the embedded store keeps nothing")
	}
	if !b.Enabled {
		for _, name := range []string{"max_file", "max_files_per_tenant", "max_jobs_per_tenant", "workers", "lease", "retention"} {
			if k.written(at + "." + name) {
				k.warn(at+"."+name, "set batch.enabled: true, or remove it", "has no effect without batch.enabled")
			}
		}
	}
}
