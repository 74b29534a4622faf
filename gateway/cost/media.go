package cost

// What is no text is estimated without looking into it. Providers differ by a
// factor of three, and settle what they count.
const (
	// Picture stands for a picture: OpenAI counts 765 for one of 1024×1024 pixels
	// and 1105 for 2048×1024, Anthropic width × height / 750, 1600 at most.
	Picture = 1000
	// SmallPicture stands for one of which the request asks for low detail (OpenAI:
	// 85).
	SmallPicture = 85
)

// Recording estimates a recording of so many bytes of base64. OpenAI counts 10
// tokens a second, which are 64 kB of base64 as PCM of 24 kHz and 5 kB as speech in
// MP3: a token for a KiB lies between.
func Recording(base64 int64) int64 { return max(base64>>10, 100) }

// File estimates a file of so many bytes of base64. A page of a PDF is about 70 kB
// and counts as its text and a picture, 1500 to 3000 tokens (Anthropic,
// "PDF support").
func File(base64 int64) int64 { return max(base64>>5, Picture) }
