// Busy in a known function, allocates, waits for a lock and parks, and records all of it:
// `java Busy.java RECORDING [URL]`. With a URL the recording is uploaded as agents do.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import jdk.jfr.Recording;

public class Busy {
    static volatile Object kept;
    static volatile long sum;

    static void knownBusyFunction(long until) {
        while (System.nanoTime() < until) {
            for (int i = 0; i < 1000; i++) sum += i * sum ^ i;
        }
    }

    static void allocate(long until) {
        while (System.nanoTime() < until) {
            kept = new byte[1 << 12];
            kept = new byte[1 << 21];
        }
    }

    static void holdLock(Object lock) throws InterruptedException {
        for (int i = 0; i < 10; i++) {
            synchronized (lock) {
                Thread.sleep(15);
            }
            Thread.sleep(1);
        }
    }

    static void waitForLock(Object lock, Thread holder) {
        while (holder.isAlive()) {
            synchronized (lock) {
                sum++;
            }
            LockSupport.parkNanos(2_000_000);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[0]);
        try (Recording recording = new Recording()) {
            recording.enable("jdk.ExecutionSample").withPeriod(Duration.ofMillis(10));
            for (String event : new String[] {"InNewTLAB", "OutsideTLAB", "Sample"})
                recording.enable("jdk.ObjectAllocation" + event).withStackTrace();
            for (String event : new String[] {"JavaMonitorEnter", "ThreadPark"})
                recording.enable("jdk." + event).withStackTrace().withThreshold(Duration.ofMillis(1));
            recording.start();
            Object lock = new Object();
            Thread holder = new Thread(() -> {
                try {
                    holdLock(lock);
                } catch (InterruptedException gone) {
                    throw new IllegalStateException(gone);
                }
            });
            holder.start();
            waitForLock(lock, holder);
            allocate(System.nanoTime() + 200_000_000);
            knownBusyFunction(System.nanoTime() + 1_500_000_000);
            recording.stop();
            recording.dump(file);
        }
        if (arguments.length > 1) {
            URI uri = URI.create(arguments[1] + "/ingest?name=java-busy&format=jfr&spyName=javaspy&sampleRate=100");
            HttpRequest request = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofFile(file)).build();
            HttpResponse<String> response =
                    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() != 200) throw new IllegalStateException(response.statusCode() + response.body());
        }
    }
}
