// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace paratope::random {

namespace {

using Clock = std::chrono::steady_clock;

struct Frame {
  uint64_t task = 0;
  uint64_t size = 0;
  bool starts = false; // else done, and `size` bytes follow
};

void write_all(int file, const void *data, size_t size) {
  const char *from = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::write(file, from, size);
    if (written < 0 && errno != EINTR)
      _exit(70); // the parent is gone
    from += written > 0 ? written : 0;
    size -= written > 0 ? static_cast<size_t>(written) : 0;
  }
}

struct Worker {
  pid_t pid = -1;
  int file = -1;
  size_t next = 0;   // the first task of a child that would be started now
  bool busy = false; // with task `now`
  size_t now = 0;
  Clock::time_point since;
  std::string received;
};

class Pool {
public:
  Pool(size_t all, int number, double limit, const std::function<std::string(size_t)> &what,
       const std::function<bool(const Finished &)> &answer)
      : count(all), jobs(number), seconds(limit), task(what), done(answer),
        workers(static_cast<size_t>(number)) {}

  void run() {
    for (size_t i = 0; i < workers.size(); ++i)
      workers[i].next = i;
    for (Worker &worker : workers)
      start(worker);
    while (step()) {
    }
    for (Worker &worker : workers)
      if (worker.pid > 0)
        stop(worker);
  }

private:
  size_t count;
  int jobs;
  double seconds;
  const std::function<std::string(size_t)> &task;
  const std::function<bool(const Finished &)> &done;
  std::vector<Worker> workers;
  bool wanted = true;

  void start(Worker &worker) {
    if (worker.next >= count)
      return;
    int ends[2];
    if (pipe(ends) != 0)
      throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
    pid_t child = fork();
    if (child < 0)
      throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
      close(ends[0]);
      for (size_t i = worker.next; i < count; i += static_cast<size_t>(jobs)) {
        Frame frame{i, 0, true};
        write_all(ends[1], &frame, sizeof frame);
        std::string text = task(i);
        frame = {i, text.size(), false};
        write_all(ends[1], &frame, sizeof frame);
        write_all(ends[1], text.data(), text.size());
      }
      _exit(0);
    }
    close(ends[1]);
    worker.pid = child;
    worker.file = ends[0];
    worker.busy = false;
    worker.received.clear();
  }

  int stop(Worker &worker) {
    kill(worker.pid, SIGKILL);
    int status = 0;
    while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(worker.file);
    worker.pid = worker.file = -1;
    return status;
  }

  // Waits for something to happen. False when there is nothing more to wait for.
  bool step() {
    std::vector<pollfd> files;
    std::vector<Worker *> of_file;
    for (Worker &worker : workers)
      if (worker.pid > 0) {
        files.push_back({worker.file, POLLIN, 0});
        of_file.push_back(&worker);
      }
    if (files.empty() || !wanted)
      return false;
    poll(files.data(), files.size(), 200);
    for (size_t i = 0; i < files.size(); ++i) {
      Worker &worker = *of_file[i];
      if (files[i].revents != 0)
        receive(worker);
      else if (worker.busy && std::chrono::duration<double>(Clock::now() - worker.since).count() > seconds)
        lose(worker, true);
    }
    return true;
  }

  void receive(Worker &worker) {
    char buffer[65536];
    ssize_t got = ::read(worker.file, buffer, sizeof buffer);
    if (got < 0)
      return; // interrupted
    if (got == 0)
      return lose(worker, false);
    worker.received.append(buffer, static_cast<size_t>(got));
    while (worker.received.size() >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, worker.received.data(), sizeof frame);
      if (worker.received.size() < sizeof frame + frame.size)
        return;
      worker.busy = frame.starts;
      worker.now = frame.task;
      worker.since = Clock::now();
      if (!frame.starts) {
        worker.next = frame.task + static_cast<size_t>(jobs);
        Finished finished;
        finished.task = frame.task;
        finished.text = worker.received.substr(sizeof frame, frame.size);
        wanted = done(finished) && wanted;
      }
      worker.received.erase(0, sizeof frame + frame.size);
    }
  }

  // The child has ended, or is ended because it hangs.
  void lose(Worker &worker, bool hung) {
    int status = 0;
    if (hung) {
      stop(worker);
    } else {
      while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
      }
      close(worker.file);
      worker.pid = worker.file = -1;
    }
    if (!worker.busy)
      return; // it has done its share
    Finished finished;
    finished.task = worker.now;
    finished.hung = hung;
    finished.signal = !hung && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    finished.exit = !hung && WIFEXITED(status) ? (WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : -1) : 0;
    wanted = done(finished) && wanted;
    worker.next = worker.now + static_cast<size_t>(jobs);
    if (wanted)
      start(worker);
  }
};

} // namespace

void run_forked(size_t count, int jobs, double seconds, const std::function<std::string(size_t)> &task,
                const std::function<bool(const Finished &)> &done) {
  Pool(count, jobs, seconds, task, done).run();
}

} // namespace paratope::random
